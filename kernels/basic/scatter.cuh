// Declarations that split.cu and scatter.cu share.
#pragma once

// Heavy lists the rows that have many indices.
struct Heavy {
    int rows, row[1];
};

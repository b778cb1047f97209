// What split.cu and scatter.cu share.
#pragma once

// Rows of many indices, and how many there are of those.
struct Heavy {
    int rows, row[1];
};

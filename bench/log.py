"""The rows of a run of peers, as bench/peers.py describes them."""

import json


class Log:
    """Rows, printed and written as they come, for a run that is cut off. A key is the op, the case and the type."""

    def __init__(self, path, rows=()):
        self.path, self.rows, self.missing = path, list(rows), 0

    def add(self, key, by, us, compiled=None):
        """Adds a row; compiled are the seconds that it took to compile the program, if it was done just now."""
        self.rows.append(dict(zip(("op", "case", "dtype"), key), by=by, median_us=round(us, 3)))
        print(f"{'/'.join(key)} {by}: {us:.1f} us" + (f", compiled in {compiled:.1f} s" if compiled else ""), flush=True)
        with open(self.path, "w") as out:
            json.dump(self.rows, out, indent=1)
            out.write("\n")

    def failed(self, key, by, error):
        self.missing += 1
        print(f"{'/'.join(key)} {by}: {type(error).__name__}: {first_line(error)}")

    def status(self):
        print(f"{len(self.rows)} rows are there, {self.missing} more are missing")
        return 1 if self.missing else 0


def first_line(error):
    return (str(error).splitlines() or [""])[0][:200]

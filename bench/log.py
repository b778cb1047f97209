"""The records of a run of peers, as bench/peers.py describes them."""

import json


def key_of(case):
    """The op, the case and the type of a case."""
    return case["op"], case["case"], case["dtype"]


class Log:
    """Records, printed and written as they come, for a run that is cut off. A key is that of [key_of]."""

    def __init__(self, path, records=()):
        self.path, self.records, self.missing = path, list(records), 0

    def add(self, key, by, us, compiled=None):
        """Adds a record; compiled are the seconds that it took to compile the program, if it was done just now."""
        self.records.append({"kind": "peer"} | dict(zip(("op", "case", "dtype"), key)) | {"by": by, "us": round(us, 3)})
        print(f"{'/'.join(key)} {by}: {us:.1f} us" + (f", compiled in {compiled:.1f} s" if compiled else ""), flush=True)
        with open(self.path, "w") as out:
            json.dump(self.records, out, indent=1)
            out.write("\n")

    def failed(self, key, by, error):
        self.missing += 1
        print(f"{'/'.join(key)} {by}: {type(error).__name__}: {first_line(error)}")

    def status(self):
        print(f"{len(self.records)} records are there, {self.missing} more are missing")
        return 1 if self.missing else 0


def first_line(error):
    return (str(error).splitlines() or [""])[0][:200]

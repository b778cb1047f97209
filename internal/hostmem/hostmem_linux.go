package hostmem

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// available returns how many bytes the process can still allocate; known is false if the system
// does not report it.
func available() (bytes int64, known bool) {
	bytes, known = read(os.DirFS("/"))
	const addressSpace = 9 // RLIMIT_AS
	var l syscall.Rlimit
	if err := syscall.Getrlimit(addressSpace, &l); err == nil && l.Cur < math.MaxInt64 {
		pages, _ := number(os.DirFS("/proc/self"), "statm")
		free := max(int64(l.Cur)-pages*int64(os.Getpagesize()), 0)
		if !known || free < bytes {
			bytes, known = free, true
		}
	}
	return bytes, known
}

// read returns, from the system's files, the least of the memory that the machine has available,
// swap included, and the memory that each of the process's control groups and their parents leaves it.
func read(root fs.FS) (bytes int64, known bool) {
	info := table(root, "proc/meminfo")
	machine, known := info["MemAvailable:"]
	if !known {
		return 0, false
	}
	bytes = (machine + info["SwapFree:"]) << 10
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		field := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(field) != 3 {
			continue
		}
		switch field[1] {
		case "": // version 2
			bytes = min(bytes, left(root, "sys/fs/cgroup", field[2], "memory.max", "memory.current", ""))
		case "memory":
			bytes = min(bytes, left(root, "sys/fs/cgroup/memory", field[2], "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))
		}
	}
	return bytes, true
}

// left returns the memory that a control group and its parents leave: their limits minus the use, copies
// of files not counted.
func left(root fs.FS, mount, group, limit, usage, prefix string) int64 {
	least := int64(math.MaxInt64)
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		folder := mount + strings.TrimSuffix(at, "/")
		most, limited := number(root, folder+"/"+limit)
		used, known := number(root, folder+"/"+usage)
		if limited && known {
			stat := table(root, folder+"/memory.stat")
			files := stat[prefix+"inactive_file"] + stat[prefix+"active_file"]
			least = min(least, max(most-max(used-files, 0), 0))
		}
		if at == "/" {
			return least
		}
	}
}

// table returns the numbers in a file that has a name and a number in each line.
func table(root fs.FS, name string) map[string]int64 {
	text, _ := fs.ReadFile(root, name)
	t := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if field := strings.Fields(line); len(field) > 1 {
			t[field[0]], _ = strconv.ParseInt(field[1], 10, 64)
		}
	}
	return t
}

// number returns the number at the beginning of a file, if there is one.
func number(root fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	field := strings.Fields(string(text))
	if err != nil || len(field) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(field[0], 10, 64)
	return n, err == nil
}

package hostmem

import (
	"testing"
	"testing/fstest"
)

// A process can have as much memory as the machine, its control group and those around it all
// have left: the least of these numbers.
func TestRead(t *testing.T) {
	const meminfo = "MemTotal: 900 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\nSwapFree: 10 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
		known bool
	}{
		"nothing":       {map[string]string{}, 0, false},
		"an old kernel": {map[string]string{"proc/meminfo": "MemTotal: 900 kB\n"}, 0, false},
		"the machine":   {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n"}, 610 << 10, true},
		"no limit": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "5\n"}, 610 << 10, true},
		"a group": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "9000\n", "sys/fs/cgroup/a/b/memory.current": "5000\n",
			"sys/fs/cgroup/a/b/memory.stat": "anon 4000\nfile 1000\ninactive_file 700\nactive_file 300\n"}, 5000, true},
		"the group around it": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "9000\n", "sys/fs/cgroup/a/b/memory.current": "5000\n",
			"sys/fs/cgroup/a/memory.max": "8000\n", "sys/fs/cgroup/a/memory.current": "7500\n"}, 500, true},
		"a container, which sees its group as the root": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/../other\n",
			"sys/fs/cgroup/memory.max": "3000\n", "sys/fs/cgroup/memory.current": "4000\n"}, 0, true},
		"version 1": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "9:cpu:/x\n4:memory:/a\n0::/\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9000\n", "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "5000\n",
			"sys/fs/cgroup/memory/a/memory.stat": "inactive_file 9\ntotal_inactive_file 1000\n"}, 5000, true},
	} {
		root := fstest.MapFS{}
		for file, text := range c.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got, known := read(root); got != c.want || known != c.known {
			t.Errorf("%s: got %d bytes, known %v, want %d, %v", name, got, known, c.want, c.known)
		}
	}
}

func TestAvailable(t *testing.T) {
	bytes, known := available()
	if !known || bytes < 1<<20 || bytes > 1<<46 {
		t.Errorf("this machine has %d bytes left, known %v", bytes, known)
	}
}

package hostmem

import (
	"syscall"
	"unsafe"
)

var globalMemoryStatus = syscall.NewLazyDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// memoryStatus is Windows' MEMORYSTATUSEX.
type memoryStatus struct {
	length, load                                       uint32
	total, free, totalPages, freePages, space, left, _ uint64
}

// available returns how many bytes the process can still commit; known is false if the system
// does not report it.
func available() (bytes int64, known bool) {
	var s memoryStatus
	s.length = uint32(unsafe.Sizeof(s))
	if err := globalMemoryStatus.Find(); err != nil {
		return 0, false
	}
	if ok, _, _ := globalMemoryStatus.Call(uintptr(unsafe.Pointer(&s))); ok == 0 {
		return 0, false
	}
	return int64(min(s.freePages, s.left)), true
}

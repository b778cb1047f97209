package driver

import (
	"time"
	"unsafe"
)

// Event is a point in the work of a stream.
type Event struct {
	ctx    *Context
	handle uintptr
}

// NewEvent makes an event that measures time.
func (c *Context) NewEvent() (*Event, error) { return c.newEvent(0) }

// NewSyncEvent makes an event for synchronization, without timing.
func (c *Context) NewSyncEvent() (*Event, error) {
	const disableTiming = 2
	return c.newEvent(disableTiming)
}

func (c *Context) newEvent(flags uintptr) (*Event, error) {
	e := &Event{ctx: c}
	return e, c.call(cuEventCreate, uintptr(unsafe.Pointer(&e.handle)), flags)
}

// Sync waits for the point at which e was last recorded. Its error may come from any earlier work.
func (e *Event) Sync() error { return e.ctx.call(cuEventSynchronize, e.handle) }

// Wait makes work queued on s after this call wait for the point at which e was last recorded.
func (s *Stream) Wait(e *Event) error { return s.ctx.call(cuStreamWaitEvent, s.handle, e.handle, 0) }

// Close releases the event. Further calls do nothing.
func (e *Event) Close() error { return closeHandle(e.ctx, &e.handle, cuEventDestroy) }

// Record sets e to the point at which all work queued on s so far completes.
func (s *Stream) Record(e *Event) error { return s.ctx.call(cuEventRecord, e.handle, s.handle) }

// RecordInGraph is Record on a stream that captures: each launch of the graph sets e.
func (s *Stream) RecordInGraph(e *Event) error {
	const external = 1
	return s.ctx.call(cuEventRecordWithFlags, e.handle, s.handle, external)
}

// Elapsed waits for stop and returns the device's time from start to stop, to about half a
// microsecond; it is negative if stop was recorded first. Both must have been recorded.
func Elapsed(start, stop *Event) (time.Duration, error) {
	if err := stop.ctx.call(cuEventSynchronize, stop.handle); err != nil {
		return 0, err
	}
	var ms float32
	err := stop.ctx.call(cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), start.handle, stop.handle)
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

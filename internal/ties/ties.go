// Package ties finds visible events that are connected by function calls and their responses.
package ties

import "github.com/patchlog-dev/patchlog/fold"

// LastConnected returns, for each of n visible events, the index of the last event that is connected to it. For an event
// without connections, this is the event's own index.
func LastConnected(n int, calls []fold.Call) []int32 {
	last := make([]int32, n)
	for i := range last {
		last[i] = int32(i)
	}
	find := func(i int32) int32 {
		for last[i] != i {
			last[i] = last[last[i]]
			i = last[i]
		}
		return i
	}
	for _, c := range calls {
		for _, r := range c.Responses {
			a, b := find(int32(c.Index)), find(int32(r))
			last[min(a, b)] = max(a, b)
		}
	}
	for i := range last {
		last[i] = find(int32(i))
	}
	return last
}

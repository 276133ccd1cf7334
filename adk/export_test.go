package adk

import (
	"testing"
	"time"
)

// Pins is for tests.
var Pins = pins

// Settle waits until nothing is being compacted in the background.
func (s *Service) Settle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		stats := s.compacting.worker.Stats()
		if stats.Waiting+stats.Running == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the background does not come to rest")
		}
	}
}

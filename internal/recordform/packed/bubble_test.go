package packed

import (
	"testing"
	"testing/synctest"
)

// What is packed first in a bubble, by this test, which is the first one, is packed outside too, by
// those that follow.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if body, err := Open(nil, Append(nil, []byte("hello"))); err != nil || string(body) != "hello" {
			t.Errorf("%q, %v", body, err)
		}
	})
	if body, err := Open(nil, Append(nil, []byte("hello"))); err != nil || string(body) != "hello" {
		t.Errorf("outside: %q, %v", body, err)
	}
}

package inspector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A page that several ask for at once, or soon after, is made once; after a second it is made anew.
func TestRenderedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c rendered
		var made atomic.Int64
		ask := func(of rendering) string {
			text, err := c.page(t.Context(), of, func() ([]byte, error) {
				time.Sleep(100 * time.Millisecond)
				return fmt.Appendf(nil, "%v %d", of.write, made.Add(1)), nil
			})
			if err != nil {
				t.Error(err)
			}
			return string(text)
		}
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				if got := ask(rendering{last: 1}); got != "false 1" {
					t.Errorf("got %q", got)
				}
			})
		}
		group.Wait()
		if got := ask(rendering{last: 1}); got != "false 1" {
			t.Errorf("soon after it is %q", got)
		}
		if got := ask(rendering{last: 1, write: true}); got != "true 2" {
			t.Errorf("for who may write it is %q", got)
		}
		if got := ask(rendering{last: 2}); got != "false 3" {
			t.Errorf("with a record more it is %q", got)
		}
		time.Sleep(renderedFor)
		if got := ask(rendering{last: 1}); got != "false 4" {
			t.Errorf("a second later it is %q", got)
		}
		for n := range uint64(3 * mostRendered) {
			ask(rendering{last: 10 + n})
		}
		if len(c.pages) > mostRendered {
			t.Errorf("%d pages are kept", len(c.pages))
		}
	})
}

// A failure is told to those who waited for the page, and is not kept. Whoever leaves before the page
// is made leaves the others to make it.
func TestRenderedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c rendered
		broken := errors.New("broken")
		if _, err := c.page(t.Context(), rendering{}, func() ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
			t.Errorf("the failure is %v", err)
		}
		var group sync.WaitGroup
		leaving, leave := context.WithCancel(t.Context())
		group.Go(func() {
			_, err := c.page(leaving, rendering{}, func() ([]byte, error) {
				<-leaving.Done()
				return nil, leaving.Err()
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("who left is told %v", err)
			}
		})
		synctest.Wait()
		for range 3 {
			group.Go(func() {
				text, err := c.page(t.Context(), rendering{}, func() ([]byte, error) { return []byte("made"), nil })
				if err != nil || string(text) != "made" {
					t.Errorf("who stayed is told %q, %v", text, err)
				}
			})
		}
		synctest.Wait()
		leave()
		group.Wait()
		func() {
			defer func() { recover() }()
			c.page(t.Context(), rendering{last: 1}, func() ([]byte, error) { panic("bad") })
		}()
		if text, err := c.page(t.Context(), rendering{last: 1}, func() ([]byte, error) { return []byte("made"), nil }); err != nil || string(text) != "made" {
			t.Errorf("after a panic: %q, %v", text, err)
		}
	})
}

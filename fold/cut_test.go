package fold

import (
	"fmt"
	"testing"
)

// If several patches have the same id, find returns the oldest in each of the lists that share the patches.
func TestFindPatch(t *testing.T) {
	var list *cut
	var lists []*cut
	want := map[string]*cut{}
	for i := range 3*pageSize + 10 {
		c := &cut{id: fmt.Sprint(i * i % 701)}
		list = c.prependTo(list)
		lists = append(lists, list)
		if want[c.id] == nil {
			want[c.id] = c
		}
	}
	for n, list := range lists {
		for id := range 701 {
			id := fmt.Sprint(id)
			wanted := want[id]
			if wanted != nil && wanted.count > n+1 {
				wanted = nil
			}
			if got := list.find(id); got != wanted {
				t.Fatalf("of %d patches, another one is found by the id %q", n+1, id)
			}
		}
	}
}

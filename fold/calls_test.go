package fold_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

func TestCalls(t *testing.T) {
	for _, c := range []struct {
		name string
		log  []string
		want string // for each call in order: index/part id[responses]
	}{
		{"none", []string{"a text:hi"}, ""},
		{"open", []string{"a call:x"}, "0/0 x[]"},
		{"answered", []string{"a call:x", "b resp:x"}, "0/0 x[1]"},
		{"after a text part", []string{"a text:so call:x call:y", "b resp:y"}, "0/1 x[] 0/2 y[1]"},
		{"parallel, answered by one event", []string{"a call:x call:y", "b resp:x resp:y"}, "0/0 x[1] 0/1 y[1]"},
		{"a placeholder, then the final response", []string{"a call:x", "b resp:x", "c text:so", "d resp:x"}, "0/0 x[1 3]"},
		{"the id used again", []string{"a call:x", "b resp:x", "c call:x", "d resp:x"}, "0/0 x[1] 2/0 x[3]"},
		{"the latest is answered first", []string{"a call:x", "b call:x", "c resp:x"}, "0/0 x[] 1/0 x[2]"},
		{"not by a response in the same event", []string{"a call:x resp:x"}, "0/0 x[]"},
		{"a response without call", []string{"a resp:x", "b call:y"}, "1/0 y[]"},
	} {
		var got []string
		for _, call := range view(t, c.log...).Calls() {
			if call.Name != "f" {
				t.Errorf("%s: the function is %q", c.name, call.Name)
			}
			got = append(got, fmt.Sprintf("%d/%d %s%v", call.Index, call.Part, call.ID, call.Responses))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCallsReturnsCopy(t *testing.T) {
	v := view(t, "a call:x", "b resp:x", "c call:y", "d resp:y", "e resp:x")
	first := v.Calls()
	for i := range first {
		first[i].Responses = append(first[i].Responses, 99)
		first[i].Responses[0] = 99
	}
	if got := fmt.Sprint(v.Calls()); got != "[{0 0 x f [1 4] false false} {2 0 y f [3] false false}]" {
		t.Errorf("after a caller changed its slice: %s", got)
	}
	if got := fmt.Sprint(first[1].Responses); got != "[99 99]" {
		t.Errorf("one call's responses are written over by another's: %s", got)
	}
}

func TestCallsMustStay(t *testing.T) {
	for _, c := range []struct {
		log  []string
		want string // ids of the calls whose MustStay is true
	}{
		{[]string{"a call:x", "b @1 text:so"}, ""},
		{[]string{"a @1 call:x", "b @2 call:y"}, "y"},
		{[]string{"a @1 call:x", "b @2 call:y", "c resp:y"}, ""},
		{[]string{"a @2 text:so", "b call:x", "c call:y by:user"}, "x y"},
		{[]string{"a @1 call:x long:x", "b resp:x", "c @2 text:so"}, "x"},
		{[]string{"a @1 call:x long:x", "b resp:x by:user", "c @2 text:so"}, ""},
		{[]string{"a @1 call:x", "b @2 text:so", "c @1 text:so"}, "x"},
	} {
		var got []string
		v := view(t, c.log...)
		for _, call := range v.Calls() {
			if call.MustStay {
				got = append(got, call.ID)
			}
			// Check refuses to hide a call if and only if MustStay is true.
			err := v.Check(patch.NewSplice(call.Index, 1), fold.CheckOptions{})
			if hidden := err != nil && strings.Contains(err.Error(), "still open"); hidden != call.MustStay {
				t.Errorf("%v: call %s must stay: %v, but the check returns %v", c.log, call.ID, call.MustStay, err)
			}
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%v: held are %q, want %q", c.log, got, c.want)
		}
	}
}

func TestEntries(t *testing.T) {
	v := view(t, "a text:1", "b text:2 summary:", "c text:3")
	var got []string
	for i, e := range v.Entries() {
		got = append(got, fmt.Sprintf("%d %s %d %v", i, e.Event.ID(), e.Seq, e.Summary))
		if e.Event != v.At(i) || e.Seq != v.Entry(i).Seq || e.Summary != v.Entry(i).Summary {
			t.Errorf("entry %d is %v", i, e)
		}
		if i == 1 {
			break
		}
	}
	if strings.Join(got, "; ") != "0 a 1 false; 1 b 2 true" {
		t.Error(got)
	}
}

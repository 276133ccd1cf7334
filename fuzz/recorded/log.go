package recorded

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/patch"
)

// Log returns a log of n events, with seqs from 1 on: those of the set that the repository
// carries, again and again. Each time they have ids of their own, and other digits in their
// contents, so that they have other identifiers, but the same words. It is the same at each call.
func Log(tb testing.TB, n int) []patch.Record {
	tb.Helper()
	events := eventsOf(tb, Sets(tb)[0])
	records := make([]patch.Record, n)
	for i := range records {
		text := otherDigits([]byte(events[i%len(events)].String()), i/len(events))
		text = append([]byte(fmt.Sprintf(`{"id":"%d-`, i)), bytes.TrimPrefix(text, []byte(`{"id":"`))...)
		e, err := patch.ParseEvent(text)
		if err != nil {
			tb.Fatal(err)
		}
		records[i] = patch.Record{Seq: uint64(i + 1), Event: e}
	}
	return records
}

// eventsOf returns the events of a set, in the order of its files.
func eventsOf(tb testing.TB, s Set) (events []*patch.Event) {
	tb.Helper()
	for _, file := range s.Files {
		f, err := os.Open(file)
		if err != nil {
			tb.Fatal(err)
		}
		records, _, err := records.ReadAll(patch.NewDecoder(f, file))
		f.Close()
		if err != nil {
			tb.Fatal(err)
		}
		for _, r := range records {
			events = append(events, r.Event)
		}
	}
	return events
}

// otherDigits turns the digits of each number in an event's content as the wheels of a counter
// turn. Zeros stay, so that no number begins with one that did not.
func otherDigits(text []byte, round int) []byte {
	shift, escape := round, 0
	for at := bytes.Index(text, []byte(`"content":`)); at >= 0 && at < len(text); at++ {
		switch c := text[at]; {
		case c == 'u' && text[at-1] == '\\':
			escape = 4
		case escape > 0:
			escape--
		case c >= '1' && c <= '9':
			text[at] = '1' + (c-'1'+byte(shift%9))%9
			shift /= 9
		case c != '0':
			shift = round
		}
	}
	return text
}

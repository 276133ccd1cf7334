package damage

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc64"
	"maps"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/statekey"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// query identifies a read of a store.
type query struct {
	Key  store.Key
	What string
}

func (q query) String() string { return q.What + " of " + q.Key.String() }

// result is the result of a read. If reading a log fails, Text has the records before the error.
type result struct {
	Text    string
	Err     string
	Absent  bool // the error reports that the session was not found
	Corrupt bool // the error reports damage
	Unknown bool // the error reports that the outcome is unknown
	Seq     uint64
}

func newResult(text string, err error) result {
	if err == nil {
		return result{Text: text}
	}
	a := result{
		Text: text, Err: err.Error(), Corrupt: errors.Is(err, store.ErrCorrupt), Unknown: errors.Is(err, store.ErrOutcomeUnknown),
		Absent: errors.Is(err, store.ErrNotFound),
	}
	if c := (*store.CorruptError)(nil); errors.As(err, &c) {
		a.Seq = c.Seq
	}
	if a.Absent {
		a.Text = "absent"
	}
	return a
}

var table = crc64.MakeTable(crc64.ECMA)

// shorten replaces a long text by a short one that identifies it, so that all results fit in memory.
func shorten(text string) string {
	if len(text) < 40 {
		return text
	}
	return fmt.Sprintf("%d bytes of sum %016x", len(text), crc64.Checksum([]byte(text), table))
}

// These queries read a whole log and the end of a log.
const (
	whole = "RawEvents"
	tail  = "RawEvents from 3"
)

// readAll reads everything that a store has, and returns the results.
func readAll(s *store.Store, keys []store.Key) map[query]result {
	out := map[query]result{}
	for _, key := range keys {
		for what, f := range reads {
			out[query{key, what}] = newResult(f(s, key))
		}
		readGet(s, key, out)
	}
	listed := map[store.Key]result{}
	var failure error
	for info, err := range s.List(ctx, store.ListOptions{}) {
		switch {
		case err != nil && info.Key == (store.Key{}):
			failure = err
		case err != nil:
			listed[info.Key] = newResult("", err)
		default:
			listed[info.Key] = newResult(fmt.Sprint(info.Seq, info.Creation, info.Created.Unix()), nil)
		}
	}
	for _, key := range keys {
		a, ok := listed[key]
		if !ok {
			if a = newResult("", store.ErrNotFound); failure != nil {
				a = newResult("", fmt.Errorf("%s: %w", key, failure))
			}
		}
		out[query{key, "List"}] = a
		delete(listed, key)
	}
	for key, a := range listed {
		out[query{key, "List"}] = a
	}
	return out
}

var reads = map[string]func(*store.Store, store.Key) (string, error){
	"Info": func(s *store.Store, k store.Key) (string, error) {
		info, err := s.Info(ctx, k)
		return fmt.Sprint(info.Seq, info.Creation, info.Created.Unix()), err
	},
	"the initial state": func(s *store.Store, k store.Key) (string, error) {
		v, err := s.ViewAt(ctx, k, 0)
		return values(maps.Collect(v.Values())), err
	},
	"ViewAt": func(s *store.Store, k store.Key) (string, error) {
		v, err := s.ViewAt(ctx, k, 2)
		if err != nil {
			return "", err
		}
		return viewText(v), nil
	},
	"Export": func(s *store.Store, k store.Key) (string, error) {
		var b strings.Builder
		err := s.Export(ctx, k, &b, store.ExportOptions{})
		return shorten(b.String()), err
	},
	"Search": func(s *store.Store, k store.Key) (string, error) {
		hits, err := recall.NewFinder(s, 0).Search(ctx, k, recall.Search{Query: "record", Limit: 1000})
		var ids []string
		for _, h := range hits {
			ids = append(ids, fmt.Sprint(h.Seq, h.Index, h.Place))
		}
		slices.Sort(ids)
		return strings.Join(ids, " "), err
	},
	whole: func(s *store.Store, k store.Key) (string, error) { return rawText(s, k, 1) },
	tail:  func(s *store.Store, k store.Key) (string, error) { return rawText(s, k, 3) },
}

// rawText returns a line for each record that was read.
func rawText(s *store.Store, k store.Key, from uint64) (string, error) {
	var b strings.Builder
	for r, err := range s.RawEvents(ctx, k, from) {
		if err != nil {
			return b.String(), err
		}
		fmt.Fprintln(&b, r.Seq, shorten(textOf(r)))
	}
	return b.String(), nil
}

// readGet reads a view and its state. Each shared value is a separate result.
func readGet(s *store.Store, k store.Key, out map[query]result) {
	session, err := s.Get(ctx, k)
	if err != nil {
		out[query{k, "Get"}] = newResult("", err)
		return
	}
	own, shared := map[string]patch.Value{}, map[string]patch.Value{}
	for name, v := range session.Values() {
		if statekey.ScopeOf(name) == statekey.Session {
			own[name] = v
		} else {
			shared[name] = v
		}
	}
	out[query{k, "Get"}] = newResult(viewText(session.View)+values(own), nil)
	for name, v := range shared {
		out[query{k, "Get, " + name}] = newResult(v.String(), nil)
	}
}

func viewText(v fold.View) string {
	var b strings.Builder
	fmt.Fprintln(&b, v.Seq())
	for _, e := range v.Events() {
		fmt.Fprintln(&b, e)
	}
	return shorten(b.String())
}

func values(state map[string]patch.Value) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(state)) {
		fmt.Fprintf(&b, " %s=%s", k, state[k])
	}
	return b.String()
}

func sortedKeys[V any](keys map[store.Key]V) []store.Key {
	return slices.SortedFunc(maps.Keys(keys), func(a, b store.Key) int { return cmp.Compare(a.String(), b.String()) })
}

package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/teststore"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// An import that would take many times the memory of its input is refused with file and line, and
// nothing of it is taken.
func TestImportLimits(t *testing.T) {
	many := func(n int, format, before, after string) string {
		var b strings.Builder
		b.WriteString(before)
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String() + after
	}
	for name, c := range map[string]struct {
		text string
		opts store.ImportOptions
		want error
		line int
	}{
		"empty objects":   {`{"id":"a"}` + "\n{}\n", store.ImportOptions{}, store.ErrInvalid, 2},
		"no known field":  {`{"seq":1,"x":1}`, store.ImportOptions{}, store.ErrInvalid, 1},
		"records":         {many(60_000, `{"id":"%d"}`+"\n", "", ""), store.ImportOptions{}, store.ErrTooLarge, 0},
		"own limit":       {many(3, `{"id":"%d"}`+"\n", "", ""), store.ImportOptions{MaxRecords: 2}, store.ErrTooLarge, 3},
		"replacements":    {many(patch.MaxReplacements, `{"id":"%d"},`, `{"patchType":"splice","start":0,"count":0,"replacement":[`, `{}]}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"state keys":      {many(patch.MaxStateKeys, `"%d":1,`, `{"actions":{"stateDelta":{`, `"z":1}}}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"initial state":   {many(patch.MaxStateKeys, `"%d":1,`, `{"patchlog":1,"initialState":{`, `"z":1}}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"fields":          {many(patch.MaxFields, `"%d":1,`, `{"id":"a",`, `"z":1}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"long running":    {many(patch.MaxLongRunning, `"%d",`, `{"longRunningToolIds":[`, `"z"]}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"calls":           {many(patch.MaxFunctionParts, `{"functionCall":{"name":"%d"}},`, `{"content":{"parts":[`, `{"functionCall":{}}]}}`), store.ImportOptions{}, store.ErrTooLarge, 1},
		"of many records": {many(100, `{"id":"%d","patchType":"splice","start":0,"count":0,"replacement":[{}`+strings.Repeat(",{}", 9_998)+"]}\n", "", ""), store.ImportOptions{}, store.ErrTooLarge, 0},
		"negative limit":  {`{"id":"a"}`, store.ImportOptions{MaxRecords: -1}, store.ErrInvalid, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := teststore.Memory(t, store.Options{})
			_, err := s.Import(ctx, key, strings.NewReader(c.text), c.opts)
			var at *patch.LineError
			if !errors.Is(err, c.want) || c.line != 0 && (!errors.As(err, &at) || at.Line != c.line) {
				t.Errorf("error %v, want one of line %d that matches %q", err, c.line, c.want)
			}
			if errors.Is(err, store.ErrTooLarge) && strings.Contains(err.Error(), "records") != strings.Contains(err.Error(), "ImportOptions.MaxRecords") {
				t.Errorf("the error does not name the option: %v", err)
			}
			if _, err := s.Info(ctx, key); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the session is there: %v", err)
			}
		})
	}
}

// endless is input that never ends and holds no record.
type endless struct{ cancel func() }

func (e endless) Read(p []byte) (int, error) {
	e.cancel()
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

// The end of the context ends the reading of a text, also where no record comes.
func TestImportChecksItsContext(t *testing.T) {
	s := teststore.Memory(t, store.Options{})
	cut, cancel := context.WithCancel(ctx)
	if _, err := s.Import(cut, key, endless{cancel}, store.ImportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/patchlog-dev/patchlog/patch"
)

// input is a file or standard input, as a command reads it.
type input struct {
	name string // as messages call it
	size int64  // 0 if not known
	r    io.Reader
	file *os.File
}

// input opens the named file; "-" is standard input.
func (a *app) input(ctx context.Context, name string) (*input, error) {
	if name == "-" {
		return &input{name: "stdin", r: &interruptible{ctx: ctx, r: a.stdin}}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	in := &input{name: name, r: &interruptible{ctx: ctx, r: f}, file: f}
	switch info, err := f.Stat(); {
	case err != nil:
		f.Close()
		return nil, err
	case info.IsDir():
		f.Close()
		return nil, fmt.Errorf("%s is a directory", name)
	case info.Mode().IsRegular():
		in.size = info.Size()
	}
	return in, nil
}

func (in *input) close() {
	if in.file != nil {
		in.file.Close() // it was only read
	}
}

// interruptible is a reader whose Read returns when the context is done, though the
// one that it reads may block for ever.
type interruptible struct {
	ctx     context.Context
	r       io.Reader
	buf     []byte
	rest    []byte // read but not returned yet
	err     error  // to return after rest
	results chan int
	readErr error // of the read under way, set before results gets its count
	busy    bool
}

func (r *interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	for len(r.rest) == 0 && r.err == nil {
		if !r.busy {
			if r.buf == nil {
				r.buf, r.results = make([]byte, 256<<10), make(chan int, 1)
			}
			r.busy = true
			go func() {
				var n int
				n, r.readErr = r.r.Read(r.buf)
				r.results <- n
			}()
		}
		select {
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		case n := <-r.results:
			r.busy, r.rest, r.err = false, r.buf[:n], r.readErr
		}
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// stateFlag is the flag --state: a JSON object.
type stateFlag struct {
	values map[string]patch.Value // nil if the flag was not given
}

func (f *stateFlag) Type() string   { return "JSON" }
func (f *stateFlag) String() string { return "" }

func (f *stateFlag) Set(text string) error {
	value, err := patch.ParseValue([]byte(text))
	if err != nil {
		return err
	}
	if f.values = value.Members(); f.values == nil {
		return errors.New("want a JSON object")
	}
	return nil
}

// options returns the state as the store takes it; nil if the flag was not given.
func (f *stateFlag) options() map[string]any {
	if f.values == nil {
		return nil
	}
	state := map[string]any{}
	for key, value := range f.values {
		state[key] = value
	}
	return state
}

package sources

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store/migrate"
)

// Input is an open file or standard input.
type Input struct {
	*bufio.Reader
	Name string

	isStdin bool
	pipe    *io.PipeReader
	file    *os.File // nil if the input is standard input
}

// Read opens a file. The name "-" means stdin. If the context ends, reading fails, even if a read of the file is
// blocked.
func Read(ctx context.Context, name string, stdin io.Reader) (*Input, error) {
	in := &Input{Name: name, isStdin: name == "-"}
	from := stdin
	if in.isStdin {
		in.Name = "stdin"
	} else {
		var err error
		if in.file, err = os.Open(name); err != nil {
			return nil, err
		}
		from = in.file
	}
	in.pipe = interruptible(ctx, from)
	in.Reader = bufio.NewReaderSize(in.pipe, migrate.HeadBytes)
	return in, nil
}

// Close closes the file.
func (in *Input) Close() {
	in.pipe.Close()
	in.file.Close() // the file was only read, so the error does not matter; Close of a nil file does nothing
}

// interruptible returns a reader whose Read returns when the context ends, even if a Read of r blocks.
func interruptible(ctx context.Context, r io.Reader) *io.PipeReader {
	out, in := io.Pipe()
	go func() {
		_, err := io.CopyBuffer(in, r, make([]byte, 256<<10))
		in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	return out
}

// ReadEvents reads the events that a patch will insert, with one JSON object per line. It gives no id to an event
// without an id, so that the same file can be used for several patches.
func ReadEvents(ctx context.Context, name string, stdin io.Reader) ([]*patch.Event, error) {
	in, err := Read(ctx, name, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var events []*patch.Event
	line, lines := 0, bufio.NewScanner(in)
	lines.Buffer(nil, patch.DefaultMaxLineBytes)
	at := func(err error) error { return &patch.LineError{File: in.Name, Line: line, Err: err} }
	for lines.Scan() {
		line++
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		if len(events) == patch.MaxReplacements {
			return nil, at(fmt.Errorf("%w: a patch puts in at most %d events", patch.ErrTooLarge, len(events)))
		}
		e, err := patch.ParseEvent(text)
		if err == nil {
			if _, header := e.Field("patchlog"); header {
				err = fmt.Errorf("%w: this is the header of a log, not an event", patch.ErrInvalid)
			} else if e.Author() == "" && !e.SaysSomething() && len(e.StateDelta()) == 0 {
				err = fmt.Errorf("%w: it has neither author, content nor state, so it is not an event", patch.ErrInvalid)
			}
		}
		if err != nil {
			return nil, at(err)
		}
		events = append(events, e)
	}
	line++
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, at(fmt.Errorf("%w: the line is longer than %d bytes", patch.ErrTooLarge, patch.DefaultMaxLineBytes))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", in.Name, err)
	}
	return events, nil
}

// isSameFile reports whether both names refer to the same existing file.
func isSameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

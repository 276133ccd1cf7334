package command

import (
	"context"
	"fmt"
	"io"
	"os"
)

// input is a file or standard input, as a command reads it.
type input struct {
	name string // as messages call it
	size int64  // 0 if not known
	r    io.Reader
	pipe io.Closer
	file *os.File
}

// input opens the named file; "-" is standard input.
func (a *app) input(ctx context.Context, name string) (*input, error) {
	if name == "-" {
		r := interruptible(ctx, a.stdin)
		return &input{name: "stdin", r: r, pipe: r}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	r := interruptible(ctx, f)
	in := &input{name: name, r: r, pipe: r, file: f}
	switch info, err := f.Stat(); {
	case err != nil:
		in.close()
		return nil, err
	case info.IsDir():
		in.close()
		return nil, fmt.Errorf("%s is a directory", name)
	case info.Mode().IsRegular():
		in.size = info.Size()
	}
	return in, nil
}

func (in *input) close() {
	in.pipe.Close()
	if in.file != nil {
		in.file.Close() // it was only read
	}
}

// interruptible is a reader whose Read returns when the context is done, though the
// one that it reads may block for ever.
func interruptible(ctx context.Context, r io.Reader) *io.PipeReader {
	out, in := io.Pipe()
	go func() {
		_, err := io.CopyBuffer(in, r, make([]byte, 256<<10))
		in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	return out
}

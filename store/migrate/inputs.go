package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

// Input is a file or a database to migrate.
type Input struct {
	Name   string
	Folder string // folder that was named instead of the file, or "" if the file itself was named
}

// Inputs expands names. A folder stands for all files in it and in its subfolders, except files in .git. A pattern
// stands for the files that [filepath.Glob] matches with it. Any other name stands for itself.
func Inputs(names []string) (inputs []Input) {
	for _, name := range names {
		found := []string{name}
		if _, err := os.Stat(name); err != nil {
			if match, _ := filepath.Glob(name); len(match) > 0 {
				found = match
			}
		}
		for _, name := range found {
			if info, err := os.Stat(name); err != nil || !info.IsDir() {
				inputs = append(inputs, Input{Name: name})
				continue
			}
			filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
				switch {
				case err != nil:
					inputs = append(inputs, Input{Name: path}) // opening the input will return the error
				case entry.IsDir() && entry.Name() == ".git":
					return fs.SkipDir
				case entry.Type().IsRegular():
					inputs = append(inputs, Input{path, name})
				}
				return nil
			})
		}
	}
	return inputs
}

// Openers open the inputs and the target of [RunAll].
type Openers struct {
	// Source opens an input. If the source is an [io.Closer], RunAll closes it.
	Source func(ctx context.Context, in Input) (Source, error)

	// Target returns the store to write to. RunAll calls Target after Source, so that the store is not locked while
	// Source waits for the input.
	Target func(ctx context.Context) (*store.Store, error)
}

// RunAll calls [Run] for each input and adds up the reports. Inputs that cannot be migrated are handled as follows:
//
//   - If a file from a folder cannot be opened, the file is listed in [Report.Unread].
//   - If the format of a file is unknown, the file is listed there too, unless it is the only input and was named itself.
//   - Any other error is passed to failed, and RunAll continues with the next input.
//
// RunAll returns an error if failed returns one, or if an error would also affect the next input. If there is only
// one input, RunAll returns its error unless the error is listed.
func RunAll(ctx context.Context, inputs []Input, open Openers, failed func(error) error, opts Options) (total Report, err error) {
	total.DryRun = opts.DryRun
	for _, in := range inputs {
		report, opened, err := runInput(ctx, in, open, opts)
		total.Add(report)
		var unknown *UnknownFormatError
		isUnknown := errors.As(err, &unknown) && (len(inputs) > 1 || in.Folder != "")
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return total, err
		case isUnknown, !opened && in.Folder != "":
			reason := strings.ReplaceAll(err.Error(), in.Name, "it")
			if isUnknown {
				reason = unknown.Reason
			}
			total.Add(Report{Unread: map[string][]string{reason: {in.Name}}})
			if in.Folder == "" {
				total.Failures++
			}
		case len(inputs) == 1, StatusOf(err) == "" && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return total, err
		default:
			total.Add(Report{Sessions: map[Status]int{Failed: 1}, Failures: 1})
			if err := failed(err); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// runInput migrates an input. The result opened reports whether the source could be opened.
func runInput(ctx context.Context, in Input, open Openers, opts Options) (_ Report, opened bool, err error) {
	source, err := open.Source(ctx, in)
	if err != nil {
		return Report{}, false, err
	}
	if closer, ok := source.(io.Closer); ok {
		defer closer.Close() // the source was only read, so the error of Close does not matter
	}
	target, err := open.Target(ctx)
	if err != nil {
		return Report{}, true, err
	}
	report, err := Run(ctx, target, source, opts)
	return report, true, err
}

// maxUnreadNames limits how many files [Report.UnreadText] names for each reason.
const maxUnreadNames = 3

// UnreadText returns a line for each reason why files were not read, and a line with the supported formats. If all
// files were read, it returns nil.
func (r Report) UnreadText() (lines []string) {
	for _, reason := range slices.Sorted(maps.Keys(r.Unread)) {
		names, more := r.Unread[reason], ""
		if n := len(names) - maxUnreadNames; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		lines = append(lines, present.Printable(fmt.Sprintf("not imported (%s): %s: %s%s", reason, present.Counted(len(names), "file"), strings.Join(names[:min(maxUnreadNames, len(names))], ", "), more)))
	}
	if len(lines) > 0 {
		lines = append(lines, "supported formats: "+FormatNames())
	}
	return lines
}

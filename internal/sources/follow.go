package sources

import (
	"context"
	"os"
	"time"

	"github.com/patchlog-dev/patchlog/store/migrate"
)

// Followed is a set of files, and of folders with files, that may grow.
type Followed struct {
	opener *Opener
	paths  []string
	seen   map[string]os.FileInfo // the state of each file when Changed last returned it
}

// Follow returns the files and folders that the paths name.
func (o *Opener) Follow(paths []string) *Followed {
	return &Followed{o, paths, map[string]os.FileInfo{}}
}

// Len returns the number of different files that Changed has returned.
func (f *Followed) Len() int { return len(f.seen) }

// Changed returns the files that are new or have changed since the last call.
func (f *Followed) Changed() (changed []migrate.Input) {
	for _, in := range f.opener.expand(f.paths) {
		info, err := os.Stat(in.Name)
		if err != nil {
			changed = append(changed, in) // the error appears when the file is opened
			continue
		}
		was := f.seen[in.Name]
		f.seen[in.Name] = info // recorded before the file is read, so that later additions count as a change
		if was == nil || was.Size() != info.Size() || !was.ModTime().Equal(info.ModTime()) {
			changed = append(changed, in)
		}
	}
	return changed
}

// followEvery is the minimum interval between two checks of the files. If a check takes long, the interval is longer.
const followEvery = time.Second

// Run repeatedly calls read with the changed files, until the context ends.
func (f *Followed) Run(ctx context.Context, read func([]migrate.Input)) {
	for wait := followEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		begun := time.Now()
		if changed := f.Changed(); len(changed) > 0 {
			read(changed)
		}
		wait = max(followEvery, 10*time.Since(begun))
	}
}

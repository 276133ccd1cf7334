package sources

import (
	"context"
	"os"
	"time"

	"github.com/patchlog-dev/patchlog/store/migrate"
)

// Followed are files and folders whose files may grow.
type Followed struct {
	opener *Opener
	paths  []string
	seen   map[string]os.FileInfo // of each file when Changed returned it last
}

// Follow returns the files that the paths name.
func (o *Opener) Follow(paths []string) *Followed {
	return &Followed{o, paths, map[string]os.FileInfo{}}
}

// Len returns the number of files that Changed has returned.
func (f *Followed) Len() int { return len(f.seen) }

// Changed returns the files that are new or have changed since the last call.
func (f *Followed) Changed() (changed []migrate.Input) {
	for _, in := range f.opener.expand(f.paths) {
		info, err := os.Stat(in.Name)
		if err != nil {
			changed = append(changed, in) // opening the file gives the error
			continue
		}
		was := f.seen[in.Name]
		f.seen[in.Name] = info // before the file is read, so that what is added meanwhile is a change
		if was == nil || was.Size() != info.Size() || !was.ModTime().Equal(info.ModTime()) {
			changed = append(changed, in)
		}
	}
	return changed
}

// followEvery is the shortest interval between two checks of the files. If a check takes long, the interval is longer.
const followEvery = time.Second

// Run repeatedly calls the function read with the changed files, until the context ends.
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

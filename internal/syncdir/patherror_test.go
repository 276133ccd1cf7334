package syncdir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/syncdir"
)

func TestReplacePath(t *testing.T) {
	_, err := os.CreateTemp(filepath.Join(t.TempDir(), "none"), "draft-*")
	link := os.Rename(filepath.Join(t.TempDir(), "draft-1"), "x")
	for _, err := range []error{err, errors.Join(errors.New("first"), err), link} {
		if got := syncdir.ReplacePath(err, "the/file"); !errors.Is(got, fs.ErrNotExist) || strings.Contains(got.Error(), "draft-") || !strings.Contains(got.Error(), "the/file") {
			t.Errorf("got %v", got)
		}
	}
	if syncdir.ReplacePath(nil, "x") != nil {
		t.Error("an error where there is none")
	}
}

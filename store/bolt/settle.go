package bolt

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

type durableFile interface {
	io.WriterAt
	Sync() error
}

// settle makes the transaction durable that the meta page names. After a sync that failed,
// or a process that was killed before its sync, the system may show a meta page that is
// not on disk, and take it for written: a further sync would leave it out. So it is
// written again. The pages that it refers to were synced before it was first written.
//
// Until that is done nothing may be said of what the file holds, nor written on top: the
// pages that an older tree needs, the one on disk, would be overwritten.
func settle(file durableFile, current *metaPage) error {
	if _, err := file.WriteAt(current.bytes[:], current.at); err != nil {
		return err
	}
	return file.Sync()
}

// syncDir makes a file's name in its directory durable. Where a directory may not be
// opened, or the file system has no sync of directories, that is the system's own matter.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

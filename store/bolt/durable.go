package bolt

import "io"

type durableFile interface {
	io.WriterAt
	Sync() error
}

// rewriteMeta makes the transaction of the current meta page durable by writing the page again and syncing it. After a
// failed sync, or if the process was killed before its sync, the page cache may hold a meta page that is not on disk,
// but is marked clean. A sync alone would skip that page. The pages that it refers to were synced before it was first
// written.
//
// Until rewriteMeta succeeds, the store must neither answer from the file nor write to it: a commit would overwrite
// pages of the older tree, which may be the only one on disk.
func rewriteMeta(file durableFile, current *metaPage) error {
	if _, err := file.WriteAt(current.bytes[:], current.at); err != nil {
		return err
	}
	return file.Sync()
}

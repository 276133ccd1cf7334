package bolt

import "io"

type durableFile interface {
	io.WriterAt
	Sync() error
}

// rewriteMeta makes the transaction of the current meta page durable. It writes the page again and syncs the file. A
// sync alone is not enough. After a failed sync, the page cache may contain a meta page that is marked clean but is
// not on disk. A later sync skips clean pages. The pages that the meta page refers to are on disk, because they were
// synced before the meta page was first written.
//
// Until rewriteMeta succeeds, the backend must neither read from the file for a caller nor write to the file. A
// commit would overwrite pages of the previous tree, which may be the only tree on disk.
func rewriteMeta(file durableFile, current *metaPage) error {
	if _, err := file.WriteAt(current.bytes[:], current.at); err != nil {
		return err
	}
	return file.Sync()
}

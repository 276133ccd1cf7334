package snapshot_test

import (
	"errors"
	"fmt"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/snapshot"
)

func exampleLog() []patch.Record {
	return []patch.Record{{Seq: 1, Event: new(patch.Event)}, {Seq: 2, Event: new(patch.Event)}, {Seq: 3, Patch: patch.NewSplice(0, 1)}}
}

// A snapshot contains no events, so the caller supplies the session's records.
func ExampleEncode() {
	log := exampleLog()
	v, _ := fold.New("creation", nil).Apply(log...)
	data, err := snapshot.Encode(v)
	if err != nil {
		fmt.Println(err)
		return
	}
	restored, err := snapshot.Decode(data, fold.New("creation", nil).WithRecords(log), 3)
	fmt.Println(restored.Seq(), restored.Len(), err)
	// Output: 3 1 <nil>
}

// Decode names the records that it needs. The caller reads them and calls Decode again.
func ExampleDecode() {
	log := exampleLog()
	v, _ := fold.New("creation", nil).Apply(log...)
	data, _ := snapshot.Encode(v)

	empty := fold.New("creation", nil)
	_, err := snapshot.Decode(data, empty, 3)
	fmt.Println(err)
	if missing := (*fold.MissingRecordsError)(nil); errors.As(err, &missing) {
		var records []patch.Record
		for _, seq := range missing.Seqs {
			records = append(records, log[seq-1])
		}
		v, err = snapshot.Decode(data, empty.WithRecords(records), 3)
		fmt.Println(v.Len(), err)
	}
	_, err = snapshot.Decode(data[1:], empty, 3)
	fmt.Println(errors.Is(err, snapshot.ErrUnusable))
	// Output:
	// the view needs 1 records, from record 2 on; supply them with WithRecords
	// 1 <nil>
	// true
}

package inspector

import (
	"github.com/patchlog-dev/patchlog/store"
	"html/template"
)

func strip(t *timeline, key store.Key, at uint64) template.HTML { return "" }
func chart(t *timeline, key store.Key, at uint64) template.HTML { return "" }

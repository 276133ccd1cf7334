package inspector

import (
	"github.com/patchlog-dev/patchlog/store"
	"html/template"
	"net/http"
)

func (i *Inspector) searchPage(w http.ResponseWriter, r *http.Request) error { return nil }
func (i *Inspector) export(w http.ResponseWriter, r *http.Request) error     { return nil }
func strip(t *timeline, key store.Key, at uint64) template.HTML              { return "" }
func chart(t *timeline, key store.Key, at uint64) template.HTML              { return "" }

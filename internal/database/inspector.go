package database

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/patchlog-dev/patchlog/store"
)

// IsInspector reports whether the name of a database is the address of an inspector.
func IsInspector(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// openInspector copies sessions from an inspector into memory. The inspector's program may write to them during the
// copy.
func openInspector(ctx context.Context, address string, use Use, opts Options) (*store.Store, error) {
	from, err := NewInspector(address, opts.Token)
	switch {
	case err != nil:
		return nil, err
	case use != Reading:
		return nil, fmt.Errorf("through %s://%s a database is only read; to write, stop the program that has it open, or use PostgreSQL", from.base.Scheme, from.base.Host)
	}
	keys := opts.Only
	if len(keys) == 0 {
		for info, err := range from.List(ctx, store.ListOptions{}) {
			if err != nil {
				return nil, err
			}
			keys = append(keys, info.Key)
		}
	}
	opts.Store.ReadOnly = false // openInspector itself writes the copy
	s, err := store.OpenMemory(opts.Store)
	if err != nil {
		return nil, err
	}
	for n, key := range keys {
		if opts.Progress != nil {
			opts.Progress(n, len(keys))
		}
		// A listed session that is not found was deleted during the copy. If the caller named the session, the caller's
		// next call to the store reports the error.
		if err := from.copy(ctx, s, key); err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Inspector is an HTTP client of a running inspector.
type Inspector struct {
	base  *url.URL
	token string
}

// NewInspector returns a client for the inspector at an address. A token in the address takes precedence over the
// argument token.
func NewInspector(address, token string) (Inspector, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" {
		return Inspector{}, errors.New("the database is not the address of an inspector, such as http://127.0.0.1:7070/")
	}
	return Inspector{base, cmp.Or(base.Query().Get("token"), token)}, nil
}

// get returns the body of a response. Its errors contain the host, but not the token.
func (c Inspector) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	at := url.URL{Scheme: c.base.Scheme, Host: c.base.Host, Path: strings.TrimSuffix(c.base.Path, "/") + "/" + path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := http.DefaultClient.Do(request)
	if wrong := (*url.Error)(nil); errors.As(err, &wrong) {
		return nil, fmt.Errorf("no inspector answers at %s: %w", c.base.Host, wrong.Err)
	}
	switch {
	case answer.StatusCode == http.StatusOK:
		return answer.Body, nil
	case answer.StatusCode == http.StatusNotFound && query != nil:
		err = store.ErrNotFound
	case answer.StatusCode == http.StatusUnauthorized && c.token != "":
		err = fmt.Errorf("%s refuses the token; check that of the address, or else PATCHLOG_TOKEN", c.base.Host)
	case answer.StatusCode == http.StatusUnauthorized:
		err = fmt.Errorf("%s demands a token; set the environment variable PATCHLOG_TOKEN", c.base.Host)
	default:
		err = fmt.Errorf("%s answers %s; is it the address of an inspector?", c.base.Host, answer.Status)
	}
	return nil, errors.Join(err, answer.Body.Close())
}

// List is like [store.Store.List], for the sessions that the user may read through the inspector. It copies no
// session.
func (c Inspector) List(ctx context.Context, opts store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		body, err := c.get(ctx, "list", nil)
		if err != nil {
			yield(store.Info{}, err)
			return
		}
		defer body.Close()
		for lines := json.NewDecoder(body); ; {
			var info store.Info
			err := lines.Decode(&info)
			switch {
			case err == io.EOF:
				return
			case err != nil:
				err = fmt.Errorf("%s: %w; is it the address of an inspector?", c.base.Host, err)
			case opts.App != "" && info.Key.App != opts.App, opts.User != "" && info.Key.User != opts.User:
				continue
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}

func (c Inspector) copy(ctx context.Context, s *store.Store, key store.Key) error {
	body, err := c.get(ctx, "export", url.Values{"key": {key.String()}})
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = s.Import(ctx, key, body, store.ImportOptions{Name: c.base.Host})
	return err
}

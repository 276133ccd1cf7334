package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/patchlog-dev/patchlog/store"
)

// isInspector reports whether a database is named by the address of an inspector that shows it.
func isInspector(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// openInspector returns a copy, in memory, of sessions that an inspector shows: those whose keys are given, or all that the
// request may read. Another program has the database open meanwhile, and goes on writing.
func (a *app) openInspector(ctx context.Context, address string, use Use, opts store.Options, only ...store.Key) (*store.Store, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" {
		return nil, errors.New("the database is not the address of an inspector, such as http://127.0.0.1:7070/")
	}
	if use != Reading {
		return nil, fmt.Errorf("a database is only read through %s://%s; stop the program that has it open to write, or use PostgreSQL", base.Scheme, base.Host)
	}
	from := inspectorClient{base, base.Query().Get("token")}
	if from.token == "" {
		from.token = a.env("PATCHLOG_TOKEN")
	}
	if len(only) == 0 {
		if only, err = from.keys(ctx); err != nil {
			return nil, err
		}
	}
	opts.ReadOnly = false // the copy is made
	s, err := store.OpenMemory(opts)
	if err != nil {
		return nil, err
	}
	bar := a.progress("read")
	for n, key := range only {
		bar.sessions(n, len(only))
		if err = from.session(ctx, s, key); err != nil && !errors.Is(err, store.ErrNotFound) { // deleted meanwhile, or never there
			break
		}
		err = nil
	}
	bar.end()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// inspectorClient reads from an inspector.
type inspectorClient struct {
	base  *url.URL
	token string
}

// get returns the answer to a request. Errors name the host, and not the token.
func (c inspectorClient) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	at := url.URL{Scheme: c.base.Scheme, Host: c.base.Host, Path: strings.TrimSuffix(c.base.Path, "/") + "/" + path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	switch {
	case answer.StatusCode == http.StatusOK:
		return answer.Body, nil
	case answer.StatusCode == http.StatusNotFound && query != nil:
		err = store.ErrNotFound
	case answer.StatusCode == http.StatusUnauthorized:
		err = fmt.Errorf("%s demands the token; give it by the environment variable PATCHLOG_TOKEN", c.base.Host)
	default:
		err = fmt.Errorf("%s answers %s; is it the address of an inspector?", c.base.Host, answer.Status)
	}
	return nil, errors.Join(err, answer.Body.Close())
}

// keys returns the keys of all sessions that may be read.
func (c inspectorClient) keys(ctx context.Context) (keys []store.Key, err error) {
	body, err := c.get(ctx, "list", nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	for lines := json.NewDecoder(bufio.NewReader(body)); ; {
		var line struct{ Key string }
		switch err := lines.Decode(&line); {
		case err == io.EOF:
			return keys, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w; is it the address of an inspector?", c.base.Host, err)
		}
		key, err := store.ParseKey(line.Key)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
}

// session copies a session.
func (c inspectorClient) session(ctx context.Context, s *store.Store, key store.Key) error {
	body, err := c.get(ctx, "export", url.Values{"key": {key.String()}})
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = s.Import(ctx, key, body, store.ImportOptions{Name: c.base.Host})
	return err
}

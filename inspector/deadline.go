package inspector

import (
	"net/http"
	"time"
)

// defaultBodyTimeout is how long a client may take to send the body of a request, which has
// actBytes at most.
const defaultBodyTimeout = 30 * time.Second

// limitBody gives the body of each request a deadline, whatever the server's own limits are. The
// deadline also holds for what the server reads of a body that no handler has read. A connection that
// misses it is closed; the server ends the deadline once the body was read. A ResponseWriter that cannot set deadlines leaves them to its server.
func (i *Inspector) limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(i.bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

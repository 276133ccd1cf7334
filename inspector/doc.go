// Package inspector shows the sessions of a store in a browser: what was logged, what a model sees
// of it and why, at any point in time, while it grows; and, where that is allowed, it lets a person
// log patches with a look at what they would do.
//
// An [Inspector] is an http.Handler for a service to mount beside its own, in the process that has
// the store open. Pages are made on the server and can be read without scripts. Nothing is asked
// of any other host. What a session says is text on a page, whatever it is.
package inspector

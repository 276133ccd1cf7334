// Package load is clients that make every call of a store that writes, and the judge of what they
// leave: it holds a store against what they were told, wherever they were cut short.
package load

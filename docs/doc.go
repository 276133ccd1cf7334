// Package docs has the documentation, and tests that check it.
package docs

// Package docs holds documentation, and tests that hold it true.
package docs

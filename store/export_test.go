package store

// Handles returns how many sessions are in use or cached.
func Handles(s *Store) int {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	return len(s.cache.handles)
}

package fold

// CheckOrphans exports checkGroupOrphans, which [View.Preview] uses for groups.
func (v View) CheckOrphans(after View, opts CheckOptions) error {
	return v.checkGroupOrphans(after, opts)
}

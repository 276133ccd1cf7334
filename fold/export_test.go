package fold

// CheckOrphans is what [View.Preview] judges a group by.
func (v View) CheckOrphans(after View, opts CheckOptions) error { return v.checkTogether(after, opts) }

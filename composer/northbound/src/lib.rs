//! The JSON API over the facade.

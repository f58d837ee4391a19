//! The facade Composer, and what runs by the clock.

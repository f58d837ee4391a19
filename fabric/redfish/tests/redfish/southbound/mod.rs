//! What the driver sends, against the published calls: DMTF's examples (DSP2046) and vendors' own words. And
//! what it makes of the answers.

mod blocks;
mod connections;
mod host_side;
mod locator;
mod mark;
mod observe;
mod password;
mod record;
mod reset;
mod service;
mod zones;

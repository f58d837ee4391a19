//! A lab as a fabric: guests of QEMU are the hosts, their root ports the host ports, and binding is plugging a device
//! into one of them over QMP. The guests' kernels plug for real, so that everything above can be tried without hardware.
//!
//! * `lab`: the file that says what there is. `monitor`: one connection to a guest's QMP socket. `look`: what is
//!   plugged in where. [`QemuDriver`]: the driver.
//!
//! Invariants:
//! * Where a device is, is asked of every guest each time: the driver remembers nothing, not even the file.
//! * A guest at whose socket nobody listens is off, and has nothing plugged in. One that does not answer has whatever it
//!   has: nothing that could be there is called free.
//! * QEMU serves one client of a socket at a time: no connection is held for longer than a short while.

mod driver;
mod lab;
mod look;
mod monitor;
mod observe;
mod unplug;

pub use driver::QemuDriver;

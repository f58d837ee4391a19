//! Who we are to an endpoint, and how secrets are kept out of everything that is printed.

use std::fmt;

/// A password or token. It can be sent, never printed: it has no `Display` and no `Serialize`, and its `Debug`
/// hides the value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that puts it on the wire.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// Send no credentials: recorded trees, or a service without accounts.
    None,
    /// HTTP Basic with every request.
    Basic { user: String, password: Secret },
    /// One Redfish session for all requests; Basic where the service has no SessionService.
    Session { user: String, password: Secret },
}

impl Auth {
    pub fn basic(user: impl Into<String>, password: Secret) -> Self {
        Self::Basic {
            user: user.into(),
            password,
        }
    }

    pub fn session(user: impl Into<String>, password: Secret) -> Self {
        Self::Session {
            user: user.into(),
            password,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_secret() {
        let auth = Auth::session("admin", Secret::new("hunter2"));
        let shown = format!("{auth:?}");
        assert!(shown.contains("admin"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

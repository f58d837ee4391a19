//! Routes, each with one handler.

#[cfg(feature = "schema")]
pub(super) use super::described::Described;
#[cfg(feature = "schema")]
use super::described::Document;
use crate::Api;
use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, on};

/// Without the document, handlers need no description.
#[cfg(not(feature = "schema"))]
pub(super) trait Described<Arguments> {}
#[cfg(not(feature = "schema"))]
impl<H> Described<()> for H {}

/// The routes so far.
pub(super) struct Paths {
    router: Router<Api>,
    #[cfg(feature = "schema")]
    pub document: Document,
}

impl Paths {
    pub fn new() -> Self {
        Self {
            router: Router::new(),
            #[cfg(feature = "schema")]
            document: Document::new(),
        }
    }

    pub fn get<H: Handler<X, Api> + Described<Y>, X: 'static, Y>(self, path: &str, handler: H) -> Self {
        self.on(MethodFilter::GET, Method::GET, path, handler)
    }

    pub fn post<H: Handler<X, Api> + Described<Y>, X: 'static, Y>(self, path: &str, handler: H) -> Self {
        self.on(MethodFilter::POST, Method::POST, path, handler)
    }

    pub fn delete<H: Handler<X, Api> + Described<Y>, X: 'static, Y>(self, path: &str, handler: H) -> Self {
        self.on(MethodFilter::DELETE, Method::DELETE, path, handler)
    }

    #[cfg_attr(
        not(feature = "schema"),
        expect(unused_variables, reason = "only the document needs it")
    )]
    fn on<H, X: 'static, Y>(mut self, filter: MethodFilter, verb: Method, path: &str, handler: H) -> Self
    where
        H: Handler<X, Api> + Described<Y>,
    {
        #[cfg(feature = "schema")]
        self.document.add::<H, Y>(&verb, path);
        self.router = self.router.route(path, on(filter, handler));
        self
    }

    pub fn router(self) -> Router<Api> {
        self.router
    }
}

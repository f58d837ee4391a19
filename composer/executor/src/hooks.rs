//! Where tests cut in: at each moment at which a crash would leave something different behind.

use async_trait::async_trait;
use poolwright_model::id::OperationId;

/// A moment in the life of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Point {
    pub operation: OperationId,
    /// `None`: the operation as a whole, its submission or its end.
    pub step: Option<u32>,
    pub undoing: bool,
    pub moment: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    BeforeIntent,
    AfterIntent,
    AfterAct,
    AfterOutcome,
}

/// Is told of every such moment, and is waited for. In production `()`.
#[async_trait]
pub trait Hooks: Send + Sync {
    async fn at(&self, point: Point);
}

#[async_trait]
impl Hooks for () {
    async fn at(&self, _point: Point) {}
}

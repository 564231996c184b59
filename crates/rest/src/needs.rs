//! What a route needs of its caller.

use railpost_store::Scope;

/// The least that a route needs of its caller. There is no default: a route without one does not
/// compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Anyone may.
    Nothing,
    /// Any valid key.
    AnyKey,
    /// A key that may publish events of the tenant.
    Publish,
    /// A key that may look at what is the tenant's.
    Read,
    /// A key that may change what is the tenant's.
    Manage,
    /// A key that may do everything.
    Admin,
}

impl Needs {
    /// Whether a key of this scope is enough.
    pub fn met_by(self, scope: Scope) -> bool {
        match self {
            Needs::Nothing | Needs::AnyKey => true,
            Needs::Publish => {
                matches!(scope, Scope::Admin | Scope::Tenant | Scope::PublishOnly)
            }
            Needs::Read => matches!(scope, Scope::Admin | Scope::Tenant | Scope::ReadOnly),
            Needs::Manage => matches!(scope, Scope::Admin | Scope::Tenant),
            Needs::Admin => scope == Scope::Admin,
        }
    }
}

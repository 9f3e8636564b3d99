"""The local server: the OpenAI API and an edit API over HTTP (`specedit serve`)."""

if vim.g.loaded_specedit or vim.fn.has("nvim-0.7") == 0 then
  return
end
vim.g.loaded_specedit = true

vim.api.nvim_create_user_command("SpecEdit", function(call)
  local ranged = call.range > 0
  require("specedit").edit(call.args, {
    first = ranged and call.line1 or nil,
    last = ranged and call.line2 or nil,
    force = call.bang,
  })
end, { nargs = "+", range = true, bang = true, desc = "Rewrite the buffer, or these lines, as the instruction says" })

vim.api.nvim_create_user_command("SpecEditCancel", function()
  require("specedit").cancel()
end, { desc = "Stop the answer that is being written for this buffer" })

--- The lines of a buffer as text, and a text back into its lines.
local M = {}

local api = vim.api
local diff = vim.text and vim.text.diff or vim.diff -- Neovim 0.12 moved it
local shown -- the buffer of the diff that was shown last

--- Why this buffer cannot be changed, or nil.
function M.refusal(buf)
  if not vim.bo[buf].modifiable then
    return "This buffer is not modifiable: nothing can be rewritten in it."
  elseif vim.bo[buf].readonly then
    return "This buffer is read-only: `:set noreadonly` first if you may change the file."
  end
end

--- Lines `first` to `last` (1 and -1 are the ends), each with its newline, the last one too: whether the file
--- ends in one, and how its lines end, is up to 'endofline' and 'fileformat', which stay as they are.
function M.text(buf, first, last)
  local lines = api.nvim_buf_get_lines(buf, first - 1, last, false)
  return table.concat(lines, "\n") .. "\n"
end

--- A text without the indentation that all its lines have, and that indentation. A method alone is no valid code,
--- which models and checks of syntax stumble over; moved to the margin it is. Blank lines do not count.
function M.dedented(text)
  local indent
  for line in text:gmatch("([^\n]*%S[^\n]*)\n") do
    local own = line:match("^[ \t]*")
    indent = indent or own
    while own:sub(1, #indent) ~= indent do
      indent = indent:sub(1, -2)
    end
  end
  if (indent or "") == "" then
    return text, ""
  end
  local moved = text:gsub("([^\n]*)\n", function(line)
    return (line:sub(1, #indent) == indent and line:sub(#indent + 1) or "") .. "\n"
  end)
  return moved, indent
end

--- Whether these bytes are text. A buffer can hold any, the server takes characters only, and no NUL.
function M.is_text(bytes)
  local more = "[\128-\191]"
  local rest = bytes:gsub("[\240-\244]" .. more:rep(3), " "):gsub("[\224-\239]" .. more:rep(2), " ")
  return not rest:gsub("[\194-\223]" .. more, " "):find("[%z\128-\255]")
end

--- Let changes before and after this be undone apart from each other.
local function break_undo()
  vim.cmd("let &l:undolevels = &l:undolevels")
end

--- Change the text `old`, which begins at line `first`, to `new`, as one step for undo. In the buffer, lines have
--- this `indent` besides.
---
--- Only lines that differ are touched, and a line that becomes another stays the same line for Neovim, so that
--- marks, folds and cursors keep their places: setbufline() does that, and nvim_buf_set_lines() does not.
---@return number places How many places differed.
function M.replace(buf, first, old, new, indent)
  if new ~= "" and new:sub(-1) ~= "\n" then
    new = new .. "\n"
  end
  local lines = vim.tbl_map(function(line)
    return line == "" and "" or indent .. line
  end, vim.split(new, "\n", { plain = true }))
  local hunks = diff(old, new, { result_type = "indices" })
  if #hunks == 0 then
    return 0
  end
  api.nvim_buf_call(buf, function()
    break_undo()
    for number = #hunks, 1, -1 do -- from the end: what is above keeps its line numbers
      local at, had, from, has = unpack(hunks[number])
      local top = first - 1 + at + (had == 0 and 1 or 0) -- of an insertion, `at` is the line above
      local both = math.min(had, has)
      for offset = 0, both - 1 do
        vim.fn.setbufline(buf, top + offset, lines[from + offset])
      end
      if has > both then
        vim.fn.appendbufline(buf, top + both - 1, vim.list_slice(lines, from + both, from + has - 1))
      elseif had > both then
        vim.fn.deletebufline(buf, top + both, top + had - 1)
      end
    end
    break_undo()
  end)
  return #hunks
end

--- Show what changed in a small window below, without going there. `q` in it, or `<C-w>z`, closes it.
function M.show(buf, name, old, new)
  local changes = diff(old, new, { ctxlen = 3 })
  local lines = vim.split(("--- a/%s\n+++ b/%s\n%s"):format(name, name, changes), "\n", { plain = true })
  table.remove(lines) -- after the last newline
  if not (shown and api.nvim_buf_is_valid(shown)) then
    shown = api.nvim_create_buf(false, true)
    vim.bo[shown].bufhidden = "wipe"
    vim.bo[shown].filetype = "diff"
    api.nvim_buf_set_keymap(shown, "n", "q", "<cmd>bwipeout<cr>", { noremap = true, nowait = true, silent = true })
  end
  vim.bo[shown].modifiable = true
  api.nvim_buf_set_lines(shown, 0, -1, false, lines)
  vim.bo[shown].modifiable = false
  if vim.fn.bufwinid(shown) ~= -1 then
    return
  end
  local here, there = api.nvim_get_current_win(), vim.fn.bufwinid(buf)
  if there ~= -1 then
    api.nvim_set_current_win(there)
  end
  -- There may be no room for a window, or the command-line window is open, which allows no other.
  if pcall(vim.cmd, ("belowright %dsplit"):format(math.min(#lines, 12))) then
    api.nvim_win_set_buf(0, shown)
    vim.cmd("setlocal nodiff noscrollbind nocursorbind nofoldenable winfixheight")
    pcall(vim.cmd, "setlocal previewwindow") -- a tab can have only one
  end
  pcall(api.nvim_set_current_win, here)
end

return M
